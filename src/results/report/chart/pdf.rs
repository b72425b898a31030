//! A picture as PDF, with embedded letters of the font, so that text can be searched and copied.

use std::collections::BTreeMap;
use std::io;

use miniz_oxide::deflate::compress_to_vec_zlib;
use pdf_writer::types::{CidFontType, FontFlags, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};
use subsetter::GlyphRemapper;

use super::font::{Face, Weight};
use super::picture::{Ink, Item, Picture, Segment, Text};

const CATALOG: Ref = Ref::new(1);
const PAGES: Ref = Ref::new(2);
const PAGE: Ref = Ref::new(3);
const CONTENT: Ref = Ref::new(4);
const INFO: Ref = Ref::new(5);
/// Each font takes five numbers from here.
const FONTS: i32 = 10;
const STATES: i32 = 30;

const SYSTEM: SystemInfo<'static> = SystemInfo {
    registry: Str(b"Adobe"),
    ordering: Str(b"Identity"),
    supplement: 0,
};

/// The letters that a picture uses of one face.
struct Used {
    glyphs: GlyphRemapper,
    /// Letter of each glyph of the part.
    letters: BTreeMap<u16, char>,
    /// Advance of each glyph of the part, in thousandths of the em.
    advances: BTreeMap<u16, f32>,
}

/// The bytes of the PDF file.
///
/// # Errors
/// If the font can't be made smaller.
pub(super) fn pdf(picture: &Picture) -> io::Result<Vec<u8>> {
    let mut fonts: BTreeMap<Weight, Used> = BTreeMap::new();
    let mut opacities: Vec<u8> = Vec::new();
    let mut content = Content::new();
    content.transform([1.0, 0.0, 0.0, -1.0, 0.0, picture.height as f32]);
    for item in &picture.items {
        match item {
            Item::Path(segments, ink) => path(&mut content, segments, *ink, &mut opacities),
            Item::Text(line) => text(&mut content, line, &mut fonts),
        }
    }
    let content = compress_to_vec_zlib(&content.finish(), 6);
    let mut pdf = Pdf::new();
    pdf.catalog(CATALOG).pages(PAGES);
    pdf.pages(PAGES).kids([PAGE]).count(1);
    pdf.document_info(INFO)
        .title(TextStr(&picture.title))
        .subject(TextStr(&picture.description))
        .creator(TextStr("sweeper"));
    let mut page = pdf.page(PAGE);
    page.media_box(Rect::new(
        0.0,
        0.0,
        picture.width as f32,
        picture.height as f32,
    ));
    page.parent(PAGES).contents(CONTENT);
    let mut resources = page.resources();
    let mut dictionary = resources.fonts();
    for &weight in fonts.keys() {
        dictionary.pair(Name(font_name(weight)), font_ref(weight, 0));
    }
    dictionary.finish();
    let mut states = resources.ext_g_states();
    for (index, percent) in opacities.iter().enumerate() {
        let name = format!("A{percent}");
        states.pair(Name(name.as_bytes()), Ref::new(STATES + index as i32));
    }
    states.finish();
    resources.finish();
    page.finish();
    pdf.stream(CONTENT, &content).filter(Filter::FlateDecode);
    for (index, &percent) in opacities.iter().enumerate() {
        let opacity = f32::from(percent) / 100.0;
        pdf.ext_graphics(Ref::new(STATES + index as i32))
            .non_stroking_alpha(opacity)
            .stroking_alpha(opacity);
    }
    for (weight, used) in &fonts {
        embed(&mut pdf, *weight, used)?;
    }
    Ok(pdf.finish())
}

fn font_name(weight: Weight) -> &'static [u8] {
    match weight {
        Weight::Regular => b"F0",
        Weight::Semibold => b"F1",
    }
}

fn font_ref(weight: Weight, part: i32) -> Ref {
    Ref::new(FONTS + 5 * (weight as i32) + part)
}

fn path(content: &mut Content, segments: &[Segment], ink: Ink, opacities: &mut Vec<u8>) {
    let part = |value: u8| f32::from(value) / 255.0;
    content.save_state();
    if ink.opacity < 1.0 {
        let percent = (ink.opacity * 100.0).round() as u8;
        if !opacities.contains(&percent) {
            opacities.push(percent);
        }
        content.set_parameters(Name(format!("A{percent}").as_bytes()));
    }
    if let Some(colour) = ink.fill {
        content.set_fill_rgb(part(colour.0), part(colour.1), part(colour.2));
    }
    if let Some((colour, width)) = ink.stroke {
        content.set_stroke_rgb(part(colour.0), part(colour.1), part(colour.2));
        content.set_line_width(width as f32);
        content.set_line_join(pdf_writer::types::LineJoinStyle::RoundJoin);
        if ink.dash != [0.0; 2] {
            content.set_dash_pattern(ink.dash.map(|length| length as f32), 0.0);
        }
    }
    for segment in segments {
        match *segment {
            Segment::Move(x, y) => content.move_to(x as f32, y as f32),
            Segment::Line(x, y) => content.line_to(x as f32, y as f32),
            Segment::Curve(points) => {
                let [a, b, c, d, x, y] = points.map(|value| value as f32);
                content.cubic_to(a, b, c, d, x, y)
            }
            Segment::Close => content.close_path(),
        };
    }
    match (ink.fill, ink.stroke) {
        (Some(_), Some(_)) => content.fill_nonzero_and_stroke(),
        (Some(_), None) => content.fill_nonzero(),
        (None, Some(_)) => content.stroke(),
        (None, None) => content.end_path(),
    };
    content.restore_state();
}

fn text(content: &mut Content, line: &Text, fonts: &mut BTreeMap<Weight, Used>) {
    let face = Face::of(line.weight);
    let used = fonts.entry(line.weight).or_insert_with(|| Used {
        glyphs: GlyphRemapper::new(),
        letters: BTreeMap::new(),
        advances: BTreeMap::new(),
    });
    let mut bytes = Vec::with_capacity(2 * line.text.len());
    for letter in line.text.chars() {
        let glyph = face.glyph(letter);
        let id = used.glyphs.remap(glyph.id);
        used.letters.insert(id, letter);
        used.advances.insert(id, (glyph.advance * 1000.0) as f32);
        bytes.extend(id.to_be_bytes());
    }
    let part = |value: u8| f32::from(value) / 255.0;
    let colour = line.colour;
    content.begin_text();
    content.set_fill_rgb(part(colour.0), part(colour.1), part(colour.2));
    content.set_font(Name(font_name(line.weight)), line.size as f32);
    // The page is upside down here.
    content.set_text_matrix([1.0, 0.0, 0.0, -1.0, line.x as f32, line.y as f32]);
    content.show(Str(&bytes));
    content.end_text();
}

fn embed(pdf: &mut Pdf, weight: Weight, used: &Used) -> io::Result<()> {
    let face = Face::of(weight);
    let part = subsetter::subset(face.bytes, 0, &used.glyphs)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let [font, cid, descriptor, to_unicode, file] = [0, 1, 2, 3, 4].map(|at| font_ref(weight, at));
    // Six capitals before the name say that it is a part of a font.
    let name = format!("SWEEPR+{}", face.name);
    let name = Name(name.as_bytes());
    pdf.type0_font(font)
        .base_font(name)
        .encoding_predefined(Name(b"Identity-H"))
        .descendant_font(cid)
        .to_unicode(to_unicode);
    let mut cid_font = pdf.cid_font(cid);
    cid_font
        .subtype(CidFontType::Type2)
        .base_font(name)
        .system_info(SYSTEM)
        .font_descriptor(descriptor)
        .default_width(0.0)
        .cid_to_gid_map_predefined(Name(b"Identity"));
    let mut widths = cid_font.widths();
    for (&id, &advance) in &used.advances {
        widths.same(id, id, advance);
    }
    widths.finish();
    cid_font.finish();
    let (top, bottom) = face.extent;
    let thousandths = |ems: f64| (ems * 1000.0) as f32;
    pdf.font_descriptor(descriptor)
        .name(name)
        .flags(FontFlags::SYMBOLIC)
        .bbox(Rect::new(
            -600.0,
            thousandths(bottom),
            3000.0,
            thousandths(top),
        ))
        .italic_angle(0.0)
        .ascent(thousandths(top))
        .descent(thousandths(bottom))
        .cap_height(714.0)
        .stem_v(80.0)
        .font_file2(file);
    let mut cmap = UnicodeCmap::new(Name(b"Custom"), SYSTEM);
    for (&id, &letter) in &used.letters {
        cmap.pair(id, letter);
    }
    let cmap = cmap.finish();
    pdf.cmap(to_unicode, &cmap)
        .name(Name(b"Custom"))
        .system_info(SYSTEM);
    let packed = compress_to_vec_zlib(&part, 6);
    pdf.stream(file, &packed)
        .filter(Filter::FlateDecode)
        .pair(Name(b"Length1"), part.len() as i32);
    Ok(())
}
